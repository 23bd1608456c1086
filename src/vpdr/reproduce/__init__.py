"""The paper's tables and figures as studies: run them, and compare the results with the paper's numbers."""

from vpdr.reproduce.reproduction import Reproduction, ReproductionResult, run_reproduction
from vpdr.reproduce.run import ExecutionOptions
from vpdr.reproduce.studies import ReproduceOptions, Study, load_study, study_ids
