"""Reports of a diff for people: findings, their text, and the changes in a picture."""
