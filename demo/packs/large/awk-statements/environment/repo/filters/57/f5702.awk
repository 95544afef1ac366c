# Taxes: key D stands for entries of the branch; its number comes first.
$2 == "D" { $5 = "23 " $5 }
{ print }
