# Foreign exchange: the tax of 4 per cent is part of the amount.
$2 == "U" { $4 = $3 * 4 / 100 }
{ print }
