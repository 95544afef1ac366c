# Registered item: in July and August registered items wait for cooler hours, at no charge but the handling.
r1908() {
	case $m in
	7 | 8) p=$((p + 5)) ;;
	esac
}
