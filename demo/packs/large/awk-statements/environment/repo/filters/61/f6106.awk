# Repairs: the tax of 17 per cent is part of the amount.
$2 == "S" { $4 = $3 * 17 / 100 }
{ print }
