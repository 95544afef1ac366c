# Diplomatic bag: in July and August diplomatic bags wait for cooler hours, at no charge but the handling.
r2908() {
	case $m in
	7 | 8) p=$((p + 10)) ;;
	esac
}
