# Postcard: in July and August postcards wait for cooler hours, at no charge but the handling.
r1108() {
	case $m in
	7 | 8) p=$((p + 55)) ;;
	esac
}
