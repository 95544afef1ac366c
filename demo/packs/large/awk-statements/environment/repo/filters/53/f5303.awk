# Energy: amounts of less than 18 are written off.
$3 < 18 { $4 = $3; $3 = 0 }
{ print }
