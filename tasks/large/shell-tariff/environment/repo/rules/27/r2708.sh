# Medicine: in July and August medicines wait for cooler hours, at no charge but the handling.
r2708() {
	case $m in
	7 | 8) p=$((p + 25)) ;;
	esac
}
