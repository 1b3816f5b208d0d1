"""Clinical records with coined medications: the plan of the interventions' study."""
