# Customs: the tax of 7 per cent is part of the amount.
$2 == "A" { $4 = $3 * 7 / 100 }
{ print }
