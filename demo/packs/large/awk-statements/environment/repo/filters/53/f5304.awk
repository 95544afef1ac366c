# Energy: more than 4500 must be approved by a second person.
$3 > 4500 { $5 = $5 " (approve)" }
{ print }
