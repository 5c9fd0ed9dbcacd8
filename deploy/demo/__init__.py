"""``python -m deploy.demo``: starts the product and uses it as three tenants would, through its API.

plan.py     who trains what on which base model
client.py   one tenant's calls to /api/v1
follow.py   a job's events folded into what a person wants to know
screen.py   the live table
report.py   var/demo.json
"""
