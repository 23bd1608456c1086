"""AG News: four kinds of news in short texts."""

from vpdr.data.division import Division
from vpdr.data.readers.news import read_news
from vpdr.data.sources.facts import DomainFacts
from vpdr.data.sources.source import Source

AGNEWS = Source(
    name="agnews",
    title="AG News",
    modality="text",
    domains=(DomainFacts(name="agnews", title="AG News", train=(30_000,) * 4, test=(1_900,) * 4),),
    class_names=("world", "sports", "business", "sci/tech"),
    needs="a train and a test file, *.csv or *.csv.gz, with or without a header: label (0-3 or 1-4) and "
    "text, or label, title and description",
    where="https://github.com/mhjabreel/CharCnn_Keras (data/ag_news_csv), or fancyzhx/ag_news on the hub",
    licence="for research and other non-commercial use",
    division=Division(skew="pooled", clients=20),
    flips=False,
    read=read_news,
)
