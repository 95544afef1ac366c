# Taxes: more than 8000 must be approved by a second person.
$3 > 8000 { $5 = $5 " (approve)" }
{ print }
