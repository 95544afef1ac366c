# Water: amounts of less than 12 are written off.
$3 < 12 { $4 = $3; $3 = 0 }
{ print }
