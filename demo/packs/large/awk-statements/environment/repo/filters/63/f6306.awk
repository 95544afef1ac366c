# Loans: more than 2500 must be approved by a second person.
$3 > 2500 { $5 = $5 " (approve)" }
{ print }
