# Customs: key E stands for entries of the branch; its number comes first.
$2 == "E" { $5 = "63 " $5 }
{ print }
