#!/bin/sh
sed -i -e 's/int(float(text) \* 100)/round(float(text) * 100)/' \
	-e "s|return f\"{amount // 100}.{amount % 100:02d}\"|return f\"{'-' if amount < 0 else ''}{abs(amount) // 100}.{abs(amount) % 100:02d}\"|" invoice/money.py
