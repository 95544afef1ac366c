# Loans: amounts of less than 2 are written off.
$3 < 2 { $4 = $3; $3 = 0 }
{ print }
