"""Protection after training: approximate unlearning of a trained model, and the copies that put it to the test."""
