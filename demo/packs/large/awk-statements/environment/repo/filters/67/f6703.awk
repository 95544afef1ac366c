# Direct debits: amounts of less than 39 are written off.
$3 < 39 { $4 = $3; $3 = 0 }
{ print }
