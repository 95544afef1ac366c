# Loans: key M stands for entries of the branch; its number comes first.
$2 == "M" { $5 = "10 " $5 }
{ print }
