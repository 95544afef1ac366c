# Wages: key C stands for entries of the branch; its number comes first.
$2 == "C" { $5 = "27 " $5 }
{ print }
