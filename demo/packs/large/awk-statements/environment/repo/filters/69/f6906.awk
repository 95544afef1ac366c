# Deposits: more than 3500 must be approved by a second person.
$3 > 3500 { $5 = $5 " (approve)" }
{ print }
