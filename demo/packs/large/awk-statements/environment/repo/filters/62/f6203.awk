# Leasing: amounts of less than 37 are written off.
$3 < 37 { $4 = $3; $3 = 0 }
{ print }
