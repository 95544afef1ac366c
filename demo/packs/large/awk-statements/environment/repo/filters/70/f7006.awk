# Petty cash: the tax of 12 per cent is part of the amount.
$2 == "L" { $4 = $3 * 12 / 100 }
{ print }
