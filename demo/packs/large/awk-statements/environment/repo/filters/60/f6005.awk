# Advertising: more than 6500 must be approved by a second person.
$3 > 6500 { $5 = $5 " (approve)" }
{ print }
