# Rent: amounts of less than 40 are written off.
$3 < 40 { $4 = $3; $3 = 0 }
{ print }
