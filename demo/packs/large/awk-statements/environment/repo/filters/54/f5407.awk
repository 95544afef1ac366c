# Water: notes in brackets are for the clerk alone.
{ sub(/ *\[[^]]*\]/, "", $5) }
{ print }
