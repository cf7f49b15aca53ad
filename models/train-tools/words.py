"""The words of tools, questions and results. Held-out words never occur in training."""

from __future__ import annotations

import random

VERBS = "get find fetch read check show search list query lookup load count".split()

NOUNS = """weather time population price temperature forecast capital president currency email phone address birthday
manager salary title status balance invoice order ticket recipe score ranking schedule timetable route distance duration
height weight length width depth speed color size shape material owner author publisher director composer singer genre
rating review summary translation definition synonym spelling history news headline stock share dividend tax interest
mortgage budget cost discount coupon menu ingredient calorie vitamin dose symptom treatment doctor hospital pharmacy
school teacher student grade homework exam lesson course library book chapter page paragraph article journal camera
picture photo video song album playlist concert museum gallery theater ticket seat flight train bus taxi hotel room
reservation parking charger battery engine tire brake license insurance policy claim contract lawyer court verdict crime
police fire river lake mountain island volcano earthquake storm rain snow wind sunrise sunset moon planet star galaxy
element atom molecule protein gene species habitat diet lifespan password username profile avatar message notification
calendar meeting agenda reminder task project deadline milestone branch commit issue version release changelog
exchange_rate stock_price air_quality opening_hours delivery_date account_balance phone_number home_address
best_friend next_meeting last_login word_count file_size blood_type shoe_size train_station tax_rate""".split()

HELDOUT_NOUNS = """humidity postcode mayor anthem altitude tide pollen nickname pension warranty tracking_number
parcel voucher refund altimeter orchestra painter stadium coach mascot harbor bridge tunnel tower castle garden
visa embassy passport customs tariff fuel_price water_level court_date gate_number birth_year hair_color""".split()

NAMES = """Paris London Berlin Madrid Rome Vienna Oslo Athens Dublin Prague Warsaw Lisbon Cairo Delhi Mumbai Beijing
Shanghai Seoul Osaka Kyoto Sydney Melbourne Auckland Toronto Montreal Boston Chicago Denver Dallas Houston Seattle Miami
Atlanta Havana Bogota Quito Santiago Nairobi Lagos Accra Dakar Tunis Tehran Baghdad Riyadh Dubai Doha Karachi Hanoi Bangkok
Manila Jakarta Anna Peter Maria John Emma Oliver Sophia Lucas Mia Noah Laura David Sarah Michael Julia Daniel Nina Thomas
Eva Martin Clara Felix Hannah Simon Alice Robert Helen George Linda Frank Susan Victor Diana France Germany Spain Italy
Norway Sweden Poland Greece Turkey Egypt Kenya Ghana India China Japan Brazil Chile Peru Mexico Canada""".split()

HELDOUT_NAMES = """Tokyo Lima Zurich Geneva Munich Hamburg Naples Porto Bergen Helsinki Riga Vilnius Tallinn Budapest
Belgrade Sofia Ankara Amman Kabul Lahore Perth Austin Phoenix Portland Bob Carol Walter Ingrid Olga Pablo Yuki Chen Fatima
Omar Zoe Liam Iris Hugo Oscar Ruth Denmark Finland Portugal Hungary Iceland Morocco Vietnam Bolivia""".split()

TEXT_PARAMETERS = """city country name person place product code date day unit language color size title file path user
account order ticket room team region street company station key topic word query category genre brand model""".split()
NUMBER_PARAMETERS = "days count limit amount year number hours level page age id minutes index distance price".split()

RESULT_WORDS = """sunny cloudy rainy windy warm cold open closed red blue green small large high low good bad new old done
ready late early full empty active fast slow cheap""".split()
UNITS = "degrees euros dollars meters kilometers hours minutes days people percent points grams pieces".split()

ONSETS = "b c d f g h j k l m n p r s t v w z b d f g k l m n p r s t br ch dr gr pl sh st tr".split()
VOWELS = "a e i o u a e i o ai ee ou".split()
CODAS = ["", "", "", "", "", "", "l", "n", "r", "s", "t"]


# Letters of the vocabulary's tokens; empty until the vocabulary is known. Training sets it, because a
# token that is rare in syllables is otherwise hardly ever copied, and a real word may well have it.
pieces: list[str] = []


def invented(rng: random.Random) -> str:
    """A word of one to three syllables or pieces; one in eight is of any letters."""
    if pieces and rng.random() < 0.5:
        return "".join(rng.choice(pieces) for _ in range(rng.choice((1, 2, 2, 3))))
    if rng.random() < 0.125:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 7)))
    count = rng.choice((1, 2, 2, 2, 2, 3, 3))
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(count))


class Words:
    """Draws the words of one split of the data: real ones of its own lists, and invented ones."""

    def __init__(self, rng: random.Random, heldout: bool = False) -> None:
        self.rng = rng
        self.nouns = HELDOUT_NOUNS if heldout else NOUNS
        self.names = HELDOUT_NAMES if heldout else NAMES
        self.invented_share = 0.3 if heldout else 0.55

    def noun(self) -> str:
        """Words joined by an underscore, as in a function's name."""
        if self.rng.random() >= self.invented_share:
            return self.rng.choice(self.nouns)
        return "_".join(invented(self.rng) for _ in range(1 + (self.rng.random() < 0.15)))

    def name(self) -> str:
        if self.rng.random() >= self.invented_share:
            return self.rng.choice(self.names)
        return invented(self.rng).capitalize()

    def text_value(self) -> str:
        draw = self.rng.random()
        if draw < 0.72:
            return self.name()
        if draw < 0.84:
            return f"{self.name()} {self.name()}"
        if draw < 0.9:
            return invented(self.rng)
        return self.rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") + self.number_value()

    def number_value(self) -> str:
        digits = self.rng.choice((1, 1, 2, 2, 3, 4))
        return str(self.rng.randint(1 if digits == 1 else 10 ** (digits - 1), 10**digits - 1))

    def result_value(self) -> str:
        draw = self.rng.random()
        if draw < 0.35:
            return self.number_value()
        if draw < 0.55:
            return f"{self.number_value()} {self.rng.choice(UNITS)}"
        if draw < 0.75:
            return self.rng.choice(RESULT_WORDS)
        if draw < 0.82:
            return f"{self.rng.choice(RESULT_WORDS)} and {self.rng.choice(RESULT_WORDS)}"
        return self.text_value()
