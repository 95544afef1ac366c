# Repairs: key M stands for entries of the branch; its number comes first.
$2 == "M" { $5 = "76 " $5 }
{ print }
