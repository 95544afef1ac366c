# Wages: amounts of less than 32 are written off.
$3 < 32 { $4 = $3; $3 = 0 }
{ print }
