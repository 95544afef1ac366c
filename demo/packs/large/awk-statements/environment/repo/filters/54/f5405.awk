# Water: more than 4000 must be approved by a second person.
$3 > 4000 { $5 = $5 " (approve)" }
{ print }
