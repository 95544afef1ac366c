# Donations: more than 1000 must be approved by a second person.
$3 > 1000 { $5 = $5 " (approve)" }
{ print }
