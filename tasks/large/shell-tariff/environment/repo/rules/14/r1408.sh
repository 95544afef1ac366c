# Newspaper: in July and August newspapers wait for cooler hours, at no charge but the handling.
r1408() {
	case $m in
	7 | 8) p=$((p + 15)) ;;
	esac
}
