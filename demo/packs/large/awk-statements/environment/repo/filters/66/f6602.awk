# Card payments: amounts of less than 57 are written off.
$3 < 57 { $4 = $3; $3 = 0 }
{ print }
