# Insurance: amounts of less than 47 are written off.
$3 < 47 { $4 = $3; $3 = 0 }
{ print }
