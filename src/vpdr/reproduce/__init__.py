"""The paper's tables and figures, each as one command: what it printed beside what comes out here."""
