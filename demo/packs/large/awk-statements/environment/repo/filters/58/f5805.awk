# Customs: more than 7000 must be approved by a second person.
$3 > 7000 { $5 = $5 " (approve)" }
{ print }
