"""Print the dashboard as JSON."""

import sys

from deploy.dashboard.grafana import dashboard, to_json
from deploy.dashboard.rows import ROWS

sys.stdout.write(to_json(dashboard(ROWS)))
