"""Words of generated clinical records: conditions with what is often given for them, places, streets.

Written for davylamp. Names of conditions and of generic medicines are common knowledge; how often they occur together
is rough and made up. Nobody should take medicine by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition.

    Attributes:
        name: as records write it.
        weight: how common it is, relative to the others.
        ages: the youngest and the oldest who have it, in years.
        medicines: what is given for it, one of them to a patient.
        gender: ``F`` or ``M`` where only they have it.
    """

    name: str
    weight: int
    ages: tuple[int, int]
    medicines: tuple[str, ...]
    gender: str | None = None


# name | weight | youngest-oldest | gender where only they have it; below it what is given, separated by commas
_CONDITIONS_TEXT = """
High blood pressure|60|30-120
  lisinopril 10 MG Oral Tablet, amlodipine 5 MG Oral Tablet, losartan potassium 50 MG Oral Tablet,
  hydrochlorothiazide 25 MG Oral Tablet
High cholesterol|45|30-120
  atorvastatin 20 MG Oral Tablet, simvastatin 40 MG Oral Tablet, rosuvastatin 10 MG Oral Tablet
Type 2 diabetes|30|25-120
  metformin hydrochloride 500 MG Oral Tablet, glipizide 5 MG Oral Tablet, sitagliptin 100 MG Oral Tablet
Type 1 diabetes|5|3-120
  insulin glargine 100 UNT/ML Injectable Solution, insulin aspart 100 UNT/ML Injectable Solution
Nerve damage from diabetes|8|40-120
  gabapentin 300 MG Oral Capsule, duloxetine 30 MG Oral Capsule
Asthma|25|2-120
  salbutamol 0.1 MG/ACTUAT Inhaler, budesonide 0.2 MG/ACTUAT Inhaler, montelukast 10 MG Oral Tablet
Chronic obstructive lung disease|14|45-120
  tiotropium 0.018 MG Inhalation Capsule, formoterol 0.012 MG Inhalation Capsule
Hay fever|30|4-120
  loratadine 10 MG Oral Tablet, cetirizine 10 MG Oral Tablet, fluticasone 0.05 MG/ACTUAT Nasal Spray
Eczema|18|0-120
  hydrocortisone 10 MG/ML Topical Cream, mometasone 1 MG/ML Topical Cream
Psoriasis|8|12-120
  calcipotriol 0.05 MG/ML Topical Ointment, betamethasone 0.5 MG/ML Topical Cream
Acne|14|11-35
  adapalene 1 MG/ML Topical Gel, doxycycline 100 MG Oral Capsule
Reflux of stomach acid|32|18-120
  omeprazole 20 MG Oral Capsule, pantoprazole 40 MG Oral Tablet, famotidine 20 MG Oral Tablet
Stomach ulcer|8|25-120
  omeprazole 40 MG Oral Capsule, sucralfate 1000 MG Oral Tablet
Irritable bowel|14|16-120
  dicyclomine 10 MG Oral Capsule, loperamide 2 MG Oral Capsule
Ulcerative colitis|4|15-120
  mesalazine 800 MG Oral Tablet, azathioprine 50 MG Oral Tablet
Crohn disease|4|14-120
  adalimumab 40 MG Prefilled Syringe, budesonide 3 MG Oral Capsule
Constipation|14|1-120
  polyethylene glycol 17000 MG Oral Powder, senna 8.6 MG Oral Tablet
Migraine|22|12-70
  sumatriptan 50 MG Oral Tablet, topiramate 50 MG Oral Tablet, propranolol 40 MG Oral Tablet
Tension headache|12|10-90
  ibuprofen 400 MG Oral Tablet, amitriptyline 10 MG Oral Tablet
Epilepsy|7|1-120
  levetiracetam 500 MG Oral Tablet, lamotrigine 100 MG Oral Tablet, valproic acid 250 MG Oral Capsule
Parkinson disease|4|55-120
  levodopa 100 MG / carbidopa 25 MG Oral Tablet, pramipexole 0.25 MG Oral Tablet
Multiple sclerosis|3|20-120
  dimethyl fumarate 240 MG Oral Capsule, interferon beta 0.03 MG Prefilled Syringe
Restless legs|7|30-120
  ropinirole 0.5 MG Oral Tablet, ferrous sulfate 325 MG Oral Tablet
Depression|34|14-120
  sertraline 50 MG Oral Tablet, escitalopram 10 MG Oral Tablet, bupropion 150 MG Oral Tablet,
  mirtazapine 15 MG Oral Tablet
Anxiety|28|12-120
  sertraline 100 MG Oral Tablet, buspirone 10 MG Oral Tablet, hydroxyzine 25 MG Oral Tablet
Bipolar disorder|6|18-120
  lithium carbonate 300 MG Oral Tablet, quetiapine 100 MG Oral Tablet
Attention deficit|12|6-50
  methylphenidate 18 MG Oral Tablet, atomoxetine 40 MG Oral Capsule
Trouble sleeping|22|18-120
  melatonin 3 MG Oral Tablet, trazodone 50 MG Oral Tablet
Sleep apnea|12|30-120
Low back pain|36|18-120
  ibuprofen 600 MG Oral Tablet, cyclobenzaprine 10 MG Oral Tablet, naproxen 500 MG Oral Tablet
Osteoarthritis of the knee|24|45-120
  acetaminophen 500 MG Oral Tablet, diclofenac 10 MG/ML Topical Gel, naproxen 250 MG Oral Tablet
Osteoarthritis of the hip|12|50-120
  acetaminophen 650 MG Oral Tablet, celecoxib 200 MG Oral Capsule
Rheumatoid arthritis|6|25-120
  methotrexate 2.5 MG Oral Tablet, hydroxychloroquine 200 MG Oral Tablet
Gout|10|35-120
  allopurinol 100 MG Oral Tablet, colchicine 0.6 MG Oral Tablet
Osteoporosis|12|55-120
  alendronic acid 70 MG Oral Tablet, cholecalciferol 0.025 MG Oral Capsule
Fibromyalgia|6|25-80
  pregabalin 75 MG Oral Capsule, duloxetine 60 MG Oral Capsule
Underactive thyroid|18|20-120
  levothyroxine 0.05 MG Oral Tablet, levothyroxine 0.1 MG Oral Tablet
Overactive thyroid|4|20-90
  methimazole 5 MG Oral Tablet
Iron deficiency|20|1-120
  ferrous sulfate 325 MG Oral Tablet
Vitamin D deficiency|20|1-120
  cholecalciferol 0.025 MG Oral Capsule
Vitamin B12 deficiency|8|40-120
  cyanocobalamin 1 MG/ML Injectable Solution
Atrial fibrillation|10|55-120
  apixaban 5 MG Oral Tablet, warfarin 5 MG Oral Tablet, metoprolol 50 MG Oral Tablet
Coronary artery disease|14|45-120
  aspirin 81 MG Oral Tablet, clopidogrel 75 MG Oral Tablet, metoprolol 25 MG Oral Tablet
Heart failure|8|50-120
  furosemide 40 MG Oral Tablet, carvedilol 6.25 MG Oral Tablet, spironolactone 25 MG Oral Tablet
Past stroke|7|50-120
  clopidogrel 75 MG Oral Tablet, aspirin 325 MG Oral Tablet
Blood clot in the leg|5|30-120
  rivaroxaban 20 MG Oral Tablet, warfarin 2.5 MG Oral Tablet
Chronic kidney disease|12|45-120
  lisinopril 5 MG Oral Tablet, sodium bicarbonate 650 MG Oral Tablet
Kidney stones|8|25-90
  tamsulosin 0.4 MG Oral Capsule, potassium citrate 1080 MG Oral Tablet
Enlarged prostate|18|50-120|M
  tamsulosin 0.4 MG Oral Capsule, finasteride 5 MG Oral Tablet
Bladder infection|18|15-120|F
  nitrofurantoin 100 MG Oral Capsule, trimethoprim 100 MG Oral Tablet
Overactive bladder|10|40-120
  oxybutynin 5 MG Oral Tablet, mirabegron 25 MG Oral Tablet
Painful periods|12|13-50|F
  naproxen 250 MG Oral Tablet, mefenamic acid 250 MG Oral Capsule
Polycystic ovaries|7|16-45|F
  metformin hydrochloride 850 MG Oral Tablet, spironolactone 50 MG Oral Tablet
Menopause symptoms|10|45-60|F
  estradiol 1 MG Oral Tablet, venlafaxine 37.5 MG Oral Capsule
Glaucoma|8|50-120
  latanoprost 0.05 MG/ML Ophthalmic Solution, timolol 5 MG/ML Ophthalmic Solution
Cataract|10|60-120
Ear infection|12|0-12
  amoxicillin 80 MG/ML Oral Suspension
Sore throat|10|3-40
  penicillin V 500 MG Oral Tablet, amoxicillin 500 MG Oral Capsule
Sinus infection|16|8-120
  amoxicillin 875 MG Oral Tablet, doxycycline 100 MG Oral Tablet
Obesity|36|8-120
Smoking|24|16-120
  nicotine 21 MG/DAY Transdermal Patch, varenicline 1 MG Oral Tablet
Alcohol use disorder|8|20-120
  naltrexone 50 MG Oral Tablet
Opioid use disorder|4|18-80
  buprenorphine 8 MG Sublingual Tablet
Peanut allergy|7|1-40
  epinephrine 0.3 MG Auto-Injector
Hearing loss|12|55-120
"""


def _conditions() -> Iterator[Condition]:
    for entry in re.split(r"\n(?! )", _CONDITIONS_TEXT.strip()):
        head, _, given = entry.partition("\n")
        name, weight, ages, *gender = head.split("|")
        youngest, oldest = map(int, ages.split("-"))
        medicines = tuple(each.strip() for each in given.split(",") if each.strip())
        yield Condition(name, int(weight), (youngest, oldest), medicines, gender[0] if gender else None)


CONDITIONS: tuple[Condition, ...] = tuple(_conditions())
"""The conditions."""

# town, state, first three digits of the postal code
_PLACES_TEXT = """
Alder Falls|ME|039
Birch Landing|VT|059
Cedar Point|NH|038
Copper Hill|MA|027
Dune Harbor|RI|029
Elm Crossing|CT|068
Granite Bay|NY|148
Harvest Green|PA|196
Iron Bridge|OH|458
Juniper Springs|MI|499
Kettle Lake|WI|549
Linden Park|MN|567
Maple Station|IA|528
North Meadow|IL|629
Otter Creek|MO|658
Prairie View|KS|679
Quarry Town|CO|816
Red Mesa|NM|884
Salt Flats|UT|847
Timber Cove|OR|979
"""
PLACES: tuple[tuple[str, str, str], ...] = tuple(
    (town, state, digits) for town, state, digits in (line.split("|") for line in _PLACES_TEXT.strip().splitlines())
)
"""Towns that do not exist, each in a state that does, with three digits of a postal code."""

STREET_KINDS: tuple[str, ...] = ("Street", "Avenue", "Road", "Lane", "Drive", "Court", "Way", "Terrace")
"""What streets are."""

RACES: tuple[tuple[str, str, float], ...] = (
    ("white", "nonhispanic", 0.58),
    ("white", "hispanic", 0.14),
    ("black", "nonhispanic", 0.13),
    ("asian", "nonhispanic", 0.08),
    ("other", "hispanic", 0.04),
    ("native", "nonhispanic", 0.03),
)
"""Race and ethnicity as records write them, with rough shares."""
