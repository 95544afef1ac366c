# Securities: amounts of less than 16 are written off.
$3 < 16 { $4 = $3; $3 = 0 }
{ print }
