# Freight: amounts of less than 11 are written off.
$3 < 11 { $4 = $3; $3 = 0 }
{ print }
