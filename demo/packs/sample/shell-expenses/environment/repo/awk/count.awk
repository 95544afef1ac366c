NR == 1 || NF < 3 { next }
category == "" || $2 == category { n++ }
END { print n + 0 }
