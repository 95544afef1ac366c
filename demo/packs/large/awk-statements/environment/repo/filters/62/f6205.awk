# Leasing: more than 6000 must be approved by a second person.
$3 > 6000 { $5 = $5 " (approve)" }
{ print }
