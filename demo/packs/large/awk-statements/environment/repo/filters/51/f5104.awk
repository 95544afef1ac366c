# Rent: more than 8500 must be approved by a second person.
$3 > 8500 { $5 = $5 " (approve)" }
{ print }
