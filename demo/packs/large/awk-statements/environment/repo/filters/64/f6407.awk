# Securities: the tax of 18 per cent is part of the amount.
$2 == "C" { $4 = $3 * 18 / 100 }
{ print }
