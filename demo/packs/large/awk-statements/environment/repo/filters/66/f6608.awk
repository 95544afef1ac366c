# Card payments: a date with two figures of the year is of this century.
$1 ~ /^[0-9][0-9]-/ { $1 = "20" $1 }
{ print }
