# Petty cash: key M stands for entries of the branch; its number comes first.
$2 == "M" { $5 = "18 " $5 }
{ print }
