# Bounced cheque: a debtor whose bank refuses owes the face amount plus the penalty.
$2 == "X" { $4 = $3 - $6 }
{ print }
