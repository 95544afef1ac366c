# Card payments: the tax of 6 per cent is part of the amount.
$2 == "H" { $4 = $3 * 6 / 100 }
{ print }
