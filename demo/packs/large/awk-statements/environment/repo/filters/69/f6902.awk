# Deposits: key H stands for entries of the branch; its number comes first.
$2 == "H" { $5 = "79 " $5 }
{ print }
