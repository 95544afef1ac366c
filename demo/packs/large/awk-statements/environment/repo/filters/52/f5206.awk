# Insurance: the tax of 16 per cent is part of the amount.
$2 == "F" { $4 = $3 * 16 / 100 }
{ print }
