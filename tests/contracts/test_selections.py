"""Contract of every selection in the package."""

from contract_cases import shipped


@shipped("selections", {"power_of_choice": {"candidates": 9}})  # options without a default
def test_a_plugin_keeps_the_contract(check):
    check()
